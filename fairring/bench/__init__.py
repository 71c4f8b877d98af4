"""`fairring bench`: what all-reduces, DDP steps and init take, beside other backends in the same run."""
