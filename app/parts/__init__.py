"""Small widgets that several pages are made of; each follows the look by itself."""
