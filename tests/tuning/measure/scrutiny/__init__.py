"""What a candidate goes through when its race is over."""
