"""A phone in Chromium, driven by Playwright: a shop and settings."""
