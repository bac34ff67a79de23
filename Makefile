# The two commands: `make run` serves the bundled site, `make test` runs every test.

.PHONY: run test

run:
	cargo run --release --locked --package evenkeel -- serve site --listen 127.0.0.1:8080

test:
	@scripts/test
