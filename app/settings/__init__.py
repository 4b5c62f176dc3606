"""What a person can choose."""
