"""`loadfactor top`: what the GPUs do now, by GPU, node, job or team."""
