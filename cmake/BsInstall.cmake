# Install rules arrive with the first release that is packaged.
