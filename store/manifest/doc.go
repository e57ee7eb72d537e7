// Package manifest encodes and decodes snapshots: image trees with structural sharing, and metadata.
package manifest
