"""The doctor: who hears whom, what is wrong, and what to do about it."""
