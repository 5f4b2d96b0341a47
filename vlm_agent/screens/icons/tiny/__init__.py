"""`phone_icons_tiny`: a small convolutional network whose weights come with the package."""
