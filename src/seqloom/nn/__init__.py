"""The mathematics: plain modules that know no configuration."""
