"""A chat as it is drawn: light pieces, each of which changes no more once it is whole."""
