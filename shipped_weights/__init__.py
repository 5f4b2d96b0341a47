"""How the weights that the package ships were made: the embedded base, the widget detector and the icon reader."""
