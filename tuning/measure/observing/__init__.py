"""What a compiled kernel does beside computing: an untimed run watched from outside, its machine code, its
source. Facts and risk lines for whoever approves; no verdict rests on them."""
