"""What the package costs, and what it does when providers fail: not in the wheel."""
