"""The client for text and vision-language models behind a chat endpoint."""
