"""Server configuration: reads files and flags into `Options`; entry point: `config_reader`."""
