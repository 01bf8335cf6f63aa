package calls

// identityCalls are made once per session.
var identityCalls = []Call{
	{Function: "nvmlDeviceGetUUID", Required: true},
	{Function: "nvmlDeviceGetPciInfo", Newest: 3, Required: true, Values: names("device", "subsystem")},
	{Function: "nvmlDeviceGetMinorNumber", Int: true,
		Readings: readings(once("minor_number", "Number of the device node.", Number, "Minor"))},
	{Function: "nvmlDeviceGetIndex", Unused: true},
	{Function: "nvmlDeviceGetName", Values: value, Text: true, Readings: readings(once("model", "Product name.", Text, "Model"))},
	{Function: "nvmlDeviceGetBrand", Values: value, C: "nvmlBrandType_t"},
	{Function: "nvmlDeviceGetArchitecture", Values: value, C: "nvmlDeviceArchitecture_t"},
	{Function: "nvmlDeviceGetCudaComputeCapability", Values: names("major", "minor"), C: "int"},
	{Function: "nvmlDeviceGetSerial", Values: value, Text: true, C: "char",
		Readings: readings(once("serial", "Serial number of the board.", Text, "Serial"))},
	{Function: "nvmlDeviceGetBoardPartNumber", Values: value, Text: true, C: "char",
		Readings: readings(once("board_part", "Part number of the board.", Text, "BoardPart"))},
	{Function: "nvmlDeviceGetVbiosVersion", Values: value, Text: true, C: "char",
		Readings: readings(once("vbios_version", "Version of the video BIOS.", Text, "VBIOS"))},
	{Function: "nvmlDeviceGetInforomImageVersion", Values: value, Text: true, C: "char",
		Readings: readings(once("inforom_image", "Version of the inforom image.", Text, "Firmware.InforomImage"))},
	{Function: "nvmlDeviceGetInforomVersion", Args: args(inforom), Values: value, Text: true, C: "char",
		CArg: "nvmlInforomObject_t", Readings: readings(
			once("inforom_oem", "Version of the inforom's OEM object.", Text, "Firmware.InforomOEM").arg("INFOROM_OEM"),
			once("inforom_ecc", "Version of the inforom's ECC object.", Text, "Firmware.InforomECC").arg("INFOROM_ECC"),
			once("inforom_power", "Version of the inforom's power object.", Text, "Firmware.InforomPower").
				arg("INFOROM_POWER"))},
	{Function: "nvmlDeviceGetGspFirmwareVersion", Since: 535, Values: value, Text: true,
		Readings: readings(once("gsp_version", "Version of the GSP firmware.", Text, "Firmware.GSP"))},
	{Function: "nvmlDeviceGetPlatformInfo", Since: 580, C: "nvmlPlatformInfo_t",
		Values: names("chassisSerialNumber", "slotNumber", "trayIndex", "hostId", "peerType", "moduleId")},
	{Function: "nvmlDeviceGetNumaNodeId", Unused: true, Since: 580, Values: value, C: u32},
	{Function: "nvmlDeviceGetBusType", Unused: true, Since: 535, Values: value, C: "nvmlBusType_t"},
}
