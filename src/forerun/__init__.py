"""forerun: train speculative drafters and decode with them, exactly."""
