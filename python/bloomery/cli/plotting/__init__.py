"""Charts of a filter: what is drawn, and two ways to draw it, in the terminal and as a picture."""
