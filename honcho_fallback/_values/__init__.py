"""What everybody may know: failures, errors, and what a call leaves behind for people.

No other room of the package is known here but ``redaction``; the classifier and the core both
stand on these.
"""
