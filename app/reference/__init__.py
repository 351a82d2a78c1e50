"""Reference pages of docs/reference, written from the code: `sluice docs`; `sluice docs --check` compares them."""
