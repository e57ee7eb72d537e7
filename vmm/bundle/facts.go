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
	FactImageConfig = "image_config"   // JSON of ImageConfig; of imported images only
	FactImageRef    = "image_ref"      // the name the image was saved under, when it has one
	FactImageDigest = "image_digest"   // of the image's configuration
)

// ImageConfig is what a container image says about running it. It is kept in the bundle's facts and, inside the guest,
// in /etc/flash/image.json, so that a command can be given the image's environment.
type ImageConfig struct {
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// ImageConfigPath is where the guest finds its image's configuration.
const ImageConfigPath = "etc/flash/image.json"
