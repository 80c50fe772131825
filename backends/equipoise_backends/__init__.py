"""The plugin that lives inside an SGLang engine: arms, CPU platform, attestation, step clock."""
