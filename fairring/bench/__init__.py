"""`fairring bench`: the time of all-reduces, DDP steps and init, beside other backends in the same run."""
