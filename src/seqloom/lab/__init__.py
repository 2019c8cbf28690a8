"""The lab: claims about sequence models, each measured in two minutes, with a table, a picture and one sentence."""
