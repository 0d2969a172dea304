"""How a client asks: whom, over what, with what that understands."""
