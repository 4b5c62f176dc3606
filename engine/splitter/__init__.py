"""Cutting one stateful OpenVINO IR at its layer boundaries into shards."""
