package bundle

// Keys of a bundle's facts, in its snapshot's Meta. Values are text; numbers are decimal.
const (
	FactSource      = "source"         // "busybox", "debian" or "import"
	FactSuite       = "suite"          // Debian's, e.g. "bookworm"; of kind debian only
	FactKernel      = "kernel"         // release, e.g. "6.1.0-57-cloud-amd64"
	FactProtocol    = "agent_protocol" // guest.Protocol of the agent in the initrd
	FactAgentHash   = "agent_sha256"   // of the agent in the initrd
	FactArch        = "arch"           // as Go says it: "amd64"
	FactDiskMiB     = "disk_mib"       // size of disk0
	FactMemMiB      = "mem_mib"        // what a VM of this bundle gets unless told otherwise
	FactVCPUs       = "vcpus"          // likewise
	FactPackages    = "packages"       // "name=version", separated by spaces; those worth knowing
	FactImageRef    = "image_ref"      // the name the image was saved under, when it has one
	FactImageDigest = "image_digest"   // of the image's configuration
)
