package ec2sim

import "github.com/berth-dev/berth/provisioner/aws/facts"

// typeXML writes one item of instanceTypeSet. Parts that a type does not have
// are left out, as EC2 leaves them out.
func typeXML(t facts.InstanceType) []byte {
	w := xmlWriter{}
	w.in("item", func() {
		w.text("instanceType", t.Name)
		w.bool("currentGeneration", t.CurrentGeneration)
		w.bool("freeTierEligible", t.FreeTier)
		w.items("supportedUsageClasses", t.UsageClasses)
		w.items("supportedRootDeviceTypes", t.RootDeviceTypes)
		w.items("supportedVirtualizationTypes", t.VirtualizationTypes)
		w.bool("bareMetal", t.BareMetal)
		w.opt("hypervisor", t.Hypervisor)
		typeProcessor(&w, t)
		w.in("memoryInfo", func() { w.int("sizeInMiB", t.MemoryMiB) })
		typeStorage(&w, t)
		typeNetwork(&w, t)
		typeDevices(&w, t)
		w.in("placementGroupInfo", func() { w.items("supportedStrategies", t.PlacementStrategies) })
		w.bool("hibernationSupported", t.Hibernation)
		w.bool("burstablePerformanceSupported", t.Burstable)
		w.bool("dedicatedHostsSupported", t.DedicatedHosts)
		w.bool("autoRecoverySupported", t.AutoRecovery)
		w.items("supportedBootModes", t.BootModes)
		w.opt("nitroEnclavesSupport", t.NitroEnclaves)
		w.opt("nitroTpmSupport", t.NitroTPM)
	})
	return w.buf
}

func typeProcessor(w *xmlWriter, t facts.InstanceType) {
	w.in("processorInfo", func() {
		w.items("supportedArchitectures", t.Architectures)
		if t.ClockGHz > 0 {
			w.float("sustainedClockSpeedInGhz", t.ClockGHz)
		}
		if len(t.ProcessorFeatures) > 0 {
			w.items("supportedFeatures", t.ProcessorFeatures)
		}
		w.opt("manufacturer", t.ProcessorManufacturer)
	})
	w.in("vCpuInfo", func() {
		w.int("defaultVCpus", int64(t.VCPUs))
		if t.Cores > 0 {
			w.int("defaultCores", int64(t.Cores))
			w.int("defaultThreadsPerCore", int64(t.ThreadsPerCore))
		}
	})
}

func typeStorage(w *xmlWriter, t facts.InstanceType) {
	w.bool("instanceStorageSupported", t.LocalStorage != nil)
	if l := t.LocalStorage; l != nil {
		w.in("instanceStorageInfo", func() {
			w.int("totalSizeInGB", int64(l.TotalGB))
			w.in("disks", func() {
				for _, d := range l.Disks {
					w.in("item", func() {
						w.int("sizeInGB", int64(d.SizeGB))
						w.int("count", int64(d.Count))
						w.text("type", d.Type)
					})
				}
			})
			w.opt("nvmeSupport", l.NVMe)
			w.opt("encryptionSupport", l.Encryption)
		})
	}
	w.in("ebsInfo", func() {
		w.opt("ebsOptimizedSupport", t.EBS.OptimizedSupport)
		w.opt("encryptionSupport", t.EBS.Encryption)
		w.opt("nvmeSupport", t.EBS.NVMe)
		w.opt("attachmentLimitType", t.EBS.AttachmentLimitType)
		if t.EBS.MaxAttachments > 0 {
			w.int("maximumEbsAttachments", int64(t.EBS.MaxAttachments))
		}
		if t.EBS.MaxMbps > 0 {
			w.in("ebsOptimizedInfo", func() {
				w.int("baselineBandwidthInMbps", int64(t.EBS.BaselineMbps))
				w.float("baselineThroughputInMBps", t.EBS.BaselineMBps)
				w.int("baselineIops", int64(t.EBS.BaselineIops))
				w.int("maximumBandwidthInMbps", int64(t.EBS.MaxMbps))
				w.float("maximumThroughputInMBps", t.EBS.MaxMBps)
				w.int("maximumIops", int64(t.EBS.MaxIops))
			})
		}
	})
}

func typeNetwork(w *xmlWriter, t facts.InstanceType) {
	n := t.Network
	w.in("networkInfo", func() {
		w.opt("networkPerformance", n.Performance)
		w.int("maximumNetworkInterfaces", int64(n.MaxENIs))
		w.int("maximumNetworkCards", int64(len(n.Cards)))
		w.int("defaultNetworkCardIndex", int64(n.DefaultCard))
		w.in("networkCards", func() {
			for _, c := range n.Cards {
				w.in("item", func() {
					w.int("networkCardIndex", int64(c.Index))
					w.opt("networkPerformance", c.Performance)
					w.int("maximumNetworkInterfaces", int64(c.MaxENIs))
					if c.PeakGbps > 0 {
						w.float("baselineBandwidthInGbps", c.BaselineGbps)
						w.float("peakBandwidthInGbps", c.PeakGbps)
					}
				})
			}
		})
		w.int("ipv4AddressesPerInterface", int64(n.IPv4PerENI))
		w.int("ipv6AddressesPerInterface", int64(n.IPv6PerENI))
		w.bool("ipv6Supported", n.IPv6)
		w.opt("enaSupport", n.ENA)
		w.bool("efaSupported", n.EFA)
		if n.MaxEFA > 0 {
			w.in("efaInfo", func() { w.int("maximumEfaInterfaces", int64(n.MaxEFA)) })
		}
		w.bool("encryptionInTransitSupported", n.EncryptionInTransit)
	})
}

func typeDevices(w *xmlWriter, t facts.InstanceType) {
	memory := func(mib int64) {
		if mib > 0 {
			w.in("memoryInfo", func() { w.int("sizeInMiB", mib) })
		}
	}
	device := func(element string, d facts.Device) {
		w.in(element, func() {
			w.int("count", int64(d.Count))
			w.text("name", d.Name)
			w.text("manufacturer", d.Manufacturer)
			memory(d.MemoryMiB)
		})
	}
	if len(t.GPUs) > 0 {
		total := int64(0)
		w.in("gpuInfo", func() {
			w.in("gpus", func() {
				for _, g := range t.GPUs {
					total += int64(g.Count) * g.MemoryMiB
					w.in("item", func() {
						w.text("name", g.Name)
						w.text("manufacturer", g.Manufacturer)
						w.int("count", int64(g.Count))
						if g.LogicalCount > 0 {
							w.int("logicalGpuCount", int64(g.LogicalCount))
							w.float("gpuPartitionSize", g.Partition)
						}
						memory(g.MemoryMiB)
					})
				}
			})
			w.int("totalGpuMemoryInMiB", total)
		})
	}
	if len(t.InferenceAccelerators) > 0 {
		w.in("inferenceAcceleratorInfo", func() {
			w.in("accelerators", func() {
				for _, d := range t.InferenceAccelerators {
					device("member", d) // the one list of EC2 that does not say item
				}
			})
		})
	}
	if len(t.NeuronDevices) > 0 {
		w.in("neuronInfo", func() {
			w.in("neuronDevices", func() {
				for _, d := range t.NeuronDevices {
					w.in("item", func() {
						w.int("count", int64(d.Count))
						w.text("name", d.Name)
						w.in("coreInfo", func() {
							w.int("count", int64(d.CoresPerDevice))
							w.int("version", int64(d.CoreVersion))
						})
						memory(d.MemoryMiB)
					})
				}
			})
		})
	}
	if len(t.FPGAs) > 0 {
		w.in("fpgaInfo", func() {
			w.in("fpgas", func() {
				for _, d := range t.FPGAs {
					device("item", d)
				}
			})
		})
	}
	if len(t.MediaAccelerators) > 0 {
		w.in("mediaAcceleratorInfo", func() {
			w.in("accelerators", func() {
				for _, d := range t.MediaAccelerators {
					device("item", d)
				}
			})
		})
	}
}
