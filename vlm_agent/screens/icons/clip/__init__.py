"""`clip:FOLDER`: a CLIP checkpoint on disk matches crops to descriptions of the meanings (section 4.3.2)."""
