"""Chats as training data (`data.sentences: chat`)."""
