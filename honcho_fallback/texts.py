"""What a text means by a table of word groups: the classifier's own reader, for other tables."""

from honcho_fallback._classify._texts import TextRules, Vocabulary

__all__ = ["TextRules", "Vocabulary"]
