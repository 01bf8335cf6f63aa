package mig

import (
	"strconv"
	"strings"
	"testing"
)

func TestTableIsSound(t *testing.T) {
	for _, c := range GPUs() {
		t.Run(c.Key, func(t *testing.T) {
			last := c.Profiles[len(c.Profiles)-1]
			if last.Compute != c.Compute || last.Memory != c.Memory || last.PerGPU != 1 {
				t.Errorf("the last profile is %+v and not the whole GPU", last)
			}
			for i, p := range c.Profiles {
				slices, gigabytes, ok := strings.Cut(p.Name, "g.")
				if n, err := strconv.Atoi(slices); !ok || err != nil || n != p.Compute {
					t.Errorf("%s has %d compute slices", p.Name, p.Compute)
				}
				named, err := strconv.ParseFloat(strings.TrimSuffix(gigabytes, "gb"), 64)
				// Names round, some in powers of ten and some of two, and the driver keeps a part.
				if err != nil || p.Bytes > named*1.07*(1<<30) || p.Bytes < named*0.86*(1<<30) {
					t.Errorf("%s holds %.1f GiB", p.Name, p.Bytes/(1<<30))
				}
				if p.PerGPU*p.Compute > c.Compute || p.PerGPU*p.Memory > c.Memory {
					t.Errorf("%d times %s do not fit on the GPU", p.PerGPU, p.Name)
				}
				if share := p.Bytes / c.Bytes; share > float64(p.Memory)/float64(c.Memory)*1.03 {
					t.Errorf("%s has %.2f of the memory for %d of %d slices", p.Name, share, p.Memory, c.Memory)
				}
				if i > 0 && (p.Compute < c.Profiles[i-1].Compute || p.Bytes < c.Profiles[i-1].Bytes) {
					t.Errorf("%s stands after the larger %s", p.Name, c.Profiles[i-1].Name)
				}
				if got, ok := c.FromResource(p.Resource()); !ok || got != p {
					t.Errorf("%s is read as %+v", p.Resource(), got)
				}
			}
		})
	}
}

func TestFor(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		model  string
		memory float64
		key    string
	}{
		{"NVIDIA A30", 24 * gib, "a30-24gb"},
		{"NVIDIA A100-SXM4-40GB", 40 * gib, "a100-40gb"},
		{"NVIDIA A100-SXM4-80GB", 80 * gib, "a100-80gb"},
		{"NVIDIA A100 80GB PCIe", 80 * gib, "a100-80gb"},
		{"A100-PCIE-40GB", 40 * gib, "a100-40gb"},
		{"NVIDIA A800-SXM4-80GB", 80 * gib, "a100-80gb"},
		{"NVIDIA H100 80GB HBM3", 81559 * mib, "h100-80gb"},
		{"NVIDIA H100 NVL", 95830 * mib, "h100-94gb"},
		{"NVIDIA GH200 480GB", 97871 * mib, "h100-96gb"},
		{"NVIDIA H200", 143771 * mib, "h200-141gb"},
		{"NVIDIA H20", 97871 * mib, "h100-96gb"},
		{"NVIDIA B200", 183359 * mib, "b200-180gb"},
		{"NVIDIA GB200", 189471 * mib, "gb200-186gb"},
		{"NVIDIA B300 SXM6 AC", 275040 * mib, "b300-269gb"},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887 * mib, "rtx-pro-6000-96gb"},
		{"NVIDIA RTX A1000", 8 * gib, ""},
		{"NVIDIA L40S", 48 * gib, ""},
		{"Tesla T4", 15 * gib, ""},
		{"NVIDIA H100 80GB HBM3", 40 * gib, ""},
		{"", 0, ""},
	} {
		c, ok := For(tt.model, tt.memory)
		if ok != (tt.key != "") || ok && c.Key != tt.key {
			t.Errorf("For(%q, %v) = %+v, want %q", tt.model, tt.memory, c, tt.key)
		}
	}
}

func TestFromResource(t *testing.T) {
	c, _ := For("NVIDIA H100 80GB HBM3", 0)
	for resource, want := range map[string]string{
		"nvidia.com/mig-1g.10gb": "1g.10gb", "nvidia_com_mig_3g_40gb": "3g.40gb", "nvidia.com/mig-1g.10gb.shared": "1g.10gb",
		"nvidia.com/gpu": "", "nvidia.com/mig-9g.90gb": "",
	} {
		if p, _ := c.FromResource(resource); p.Name != want {
			t.Errorf("%s is %q, want %q", resource, p.Name, want)
		}
	}
}

func TestWithProfile(t *testing.T) {
	for _, tt := range []struct{ model, profile, key string }{
		{"NVIDIA A100-SXM4-80GB", "3g.40gb", "a100-80gb"}, {"NVIDIA A100-SXM4-40GB", "3g.20gb", "a100-40gb"},
		{"NVIDIA A100-SXM4-80GB", "9g.1tb", ""}, {"NVIDIA L40S", "1g.10gb", ""},
	} {
		g, p, ok := WithProfile(tt.model, tt.profile)
		if ok != (tt.key != "") || ok && (g.Key != tt.key || p.Name != tt.profile) {
			t.Errorf("%s %s: %v %v", tt.model, tt.profile, g, p)
		}
	}
}
