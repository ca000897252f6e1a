"""What loadfactor.toml and the environment say: one base class, a file a topic, and the reference that is generated from them."""
