"""What the statistics pages and their API show of methods, comparisons and tuning's worth."""
