"""Understanding a screen from its pixels: texts, widgets, icons, blocks, and their description (VisionTasker)."""
