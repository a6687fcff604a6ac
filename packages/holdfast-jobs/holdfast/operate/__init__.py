"""What operators do, behind every face: an action takes who acts, checks the role, writes audit."""
