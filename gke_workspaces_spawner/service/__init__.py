"""A managed service of the Hub that only keeps time: the Hub process decides, it is kicked."""
