"""What operators see and do of batches and costs: verbs, checks, explanations."""
