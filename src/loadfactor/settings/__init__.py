"""Settings of loadfactor.toml and the environment: one base class, a file a topic, and the reference generated from them."""
