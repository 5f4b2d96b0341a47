"""Parts of studies/screens: screens with their truth, and counts of what was found."""
