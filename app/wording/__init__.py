"""Every word a person sees, in English and in 简体中文."""
