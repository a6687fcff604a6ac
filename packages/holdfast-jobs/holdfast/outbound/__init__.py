"""Calls that leave the house: guarded, bounded in time, never repeated by themselves."""
