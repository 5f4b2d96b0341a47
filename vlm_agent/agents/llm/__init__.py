"""Text and vision-language models behind an endpoint."""
