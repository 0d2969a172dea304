"""What a set of inputs holds: kinds of values that jobs have, dealt to the rows of every input."""
