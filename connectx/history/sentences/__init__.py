"""Every sentence about a history, made from its folds: stories, and the titles of what timelines show."""
