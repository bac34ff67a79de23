# `make run` serves the bundled site, `make test` runs every test, and `make php` builds the program
# in which PHP runs.

# The address of `make run`; `make run LISTEN=127.0.0.1:8000` if this one is in use.
LISTEN ?= 127.0.0.1:8080

.PHONY: run test php

run:
	cargo run --release --locked --package evenkeel -- serve site --listen $(LISTEN)

test:
	@scripts/test

php:
	@scripts/php
