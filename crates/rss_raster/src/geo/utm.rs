//! Conversion from UTM to degrees, on WGS 84.
//!
//! The transverse Mercator series of Krüger to the sixth order in the third flattening, as given
//! by [Karney (2011)](https://doi.org/10.1007/s00190-011-0445-3), equations 35 and 36. Inside a
//! zone, and for hundreds of kilometres beside it, its error is far below a millimetre.

/// Equatorial radius of WGS 84 in metres.
const A: f64 = 6_378_137.0;
/// Flattening of WGS 84.
const F: f64 = 1.0 / 298.257_223_563;
/// Third flattening.
const N: f64 = F / (2.0 - F);
/// Scale on the central meridian.
const K0: f64 = 0.9996;
const FALSE_EASTING: f64 = 500_000.0;
const FALSE_NORTHING_SOUTH: f64 = 10_000_000.0;

/// Radius of the rectifying sphere in metres.
const RECTIFYING_RADIUS: f64 =
    A / (1.0 + N) * (1.0 + N * N / 4.0 + N * N * N * N / 64.0 + N * N * N * N * N * N / 256.0);

/// Coefficients of `n`, `n^2`, .. `n^6` in each beta of the inverse series.
const BETA: [[f64; 6]; 6] = [
    [
        1.0 / 2.0,
        -2.0 / 3.0,
        37.0 / 96.0,
        -1.0 / 360.0,
        -81.0 / 512.0,
        96_199.0 / 604_800.0,
    ],
    [
        0.0,
        1.0 / 48.0,
        1.0 / 15.0,
        -437.0 / 1440.0,
        46.0 / 105.0,
        -1_118_711.0 / 3_870_720.0,
    ],
    [
        0.0,
        0.0,
        17.0 / 480.0,
        -37.0 / 840.0,
        -209.0 / 4480.0,
        5569.0 / 90_720.0,
    ],
    [
        0.0,
        0.0,
        0.0,
        4397.0 / 161_280.0,
        -11.0 / 504.0,
        -830_251.0 / 7_257_600.0,
    ],
    [
        0.0,
        0.0,
        0.0,
        0.0,
        4583.0 / 161_280.0,
        -108_847.0 / 3_991_680.0,
    ],
    [0.0, 0.0, 0.0, 0.0, 0.0, 20_648_693.0 / 638_668_800.0],
];

/// A UTM zone of one hemisphere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UtmZone {
    /// 1 to 60, eastwards from longitude -180.
    pub(super) number: u8,
    /// True in the southern hemisphere.
    pub(super) south: bool,
}

/// A point in degrees. The longitude may lie beyond 180, so that a shape stays in one piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LonLat {
    pub(super) lon: f64,
    pub(super) lat: f64,
}

impl UtmZone {
    /// Returns the longitude of the central meridian in degrees.
    pub(super) fn central_meridian(self) -> f64 {
        f64::from(self.number) * 6.0 - 183.0
    }

    /// Returns the EPSG code: 326zz in the north, 327zz in the south.
    pub(super) fn epsg(self) -> u32 {
        (if self.south { 32_700 } else { 32_600 }) + u32::from(self.number)
    }

    /// Returns the point at an easting and a northing in metres.
    pub(super) fn to_lon_lat(self, easting: f64, northing: f64) -> LonLat {
        let false_northing = if self.south {
            FALSE_NORTHING_SOUTH
        } else {
            0.0
        };
        let xi = (northing - false_northing) / (K0 * RECTIFYING_RADIUS);
        let eta = (easting - FALSE_EASTING) / (K0 * RECTIFYING_RADIUS);
        let (mut xi0, mut eta0) = (xi, eta);
        for (j, beta) in (1_u8..).zip(series(&BETA)) {
            let k = 2.0 * f64::from(j);
            xi0 -= beta * (k * xi).sin() * (k * eta).cosh();
            eta0 -= beta * (k * xi).cos() * (k * eta).sinh();
        }
        let tau_conformal = xi0.sin() / eta0.sinh().hypot(xi0.cos());
        let dlon = eta0.sinh().atan2(xi0.cos());
        LonLat {
            lon: self.central_meridian() + dlon.to_degrees(),
            lat: geographic(tau_conformal).atan().to_degrees(),
        }
    }
}

/// Evaluates each polynomial in the third flattening by Horner's rule.
fn series(coefficients: &[[f64; 6]; 6]) -> [f64; 6] {
    coefficients.map(|row| row.iter().rev().fold(0.0, |sum, c| (sum + c) * N))
}

/// Returns the tangent of the conformal latitude for the tangent of a geographic one.
fn conformal(tau: f64) -> f64 {
    let e = (F * (2.0 - F)).sqrt();
    let sigma = (e * (e * tau / tau.hypot(1.0)).atanh()).sinh();
    tau * sigma.hypot(1.0) - sigma * tau.hypot(1.0)
}

/// Returns the tangent of the geographic latitude for the tangent of a conformal one, by Newton's
/// method (Karney, equations 19 to 21), which settles in two or three steps.
fn geographic(tau_conformal: f64) -> f64 {
    let e2 = F * (2.0 - F);
    let mut tau = tau_conformal / (1.0 - e2);
    // The limit ends the loop for NaN.
    for _ in 0..6 {
        let here = conformal(tau);
        let step = (tau_conformal - here) / here.hypot(1.0) * (1.0 + (1.0 - e2) * tau * tau)
            / ((1.0 - e2) * tau.hypot(1.0));
        tau += step;
        if step.abs() <= 1e-15 * tau.abs().max(1.0) {
            break;
        }
    }
    tau
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Coefficients of `n`, `n^2`, .. `n^6` in each alpha of the forward series.
    const ALPHA: [[f64; 6]; 6] = [
        [
            1.0 / 2.0,
            -2.0 / 3.0,
            5.0 / 16.0,
            41.0 / 180.0,
            -127.0 / 288.0,
            7891.0 / 37_800.0,
        ],
        [
            0.0,
            13.0 / 48.0,
            -3.0 / 5.0,
            557.0 / 1440.0,
            281.0 / 630.0,
            -1_983_433.0 / 1_935_360.0,
        ],
        [
            0.0,
            0.0,
            61.0 / 240.0,
            -103.0 / 140.0,
            15_061.0 / 26_880.0,
            167_603.0 / 181_440.0,
        ],
        [
            0.0,
            0.0,
            0.0,
            49_561.0 / 161_280.0,
            -179.0 / 168.0,
            6_601_661.0 / 7_257_600.0,
        ],
        [
            0.0,
            0.0,
            0.0,
            0.0,
            34_729.0 / 80_640.0,
            -3_418_889.0 / 1_995_840.0,
        ],
        [0.0, 0.0, 0.0, 0.0, 0.0, 212_378_941.0 / 319_334_400.0],
    ];

    fn to_utm(zone: UtmZone, point: LonLat) -> [f64; 2] {
        let tau = conformal(point.lat.to_radians().tan());
        let dlon = (point.lon - zone.central_meridian()).to_radians();
        let xi0 = tau.atan2(dlon.cos());
        let eta0 = (dlon.sin() / tau.hypot(dlon.cos())).asinh();
        let (mut xi, mut eta) = (xi0, eta0);
        for (j, alpha) in (1_u8..).zip(series(&ALPHA)) {
            let k = 2.0 * f64::from(j);
            xi += alpha * (k * xi0).sin() * (k * eta0).cosh();
            eta += alpha * (k * xi0).cos() * (k * eta0).sinh();
        }
        let false_northing = if zone.south {
            FALSE_NORTHING_SOUTH
        } else {
            0.0
        };
        [
            FALSE_EASTING + K0 * RECTIFYING_RADIUS * eta,
            false_northing + K0 * RECTIFYING_RADIUS * xi,
        ]
    }

    proptest! {
        #[test]
        fn degrees_and_metres_undo_each_other(
            number in 1_u8..=60,
            south: bool,
            easting in 0.0..1_000_000.0_f64,
            from_equator in 0.0..9_300_000.0_f64,
        ) {
            let zone = UtmZone { number, south };
            let northing = if south { 1e7 - from_equator } else { from_equator };
            let [x, y] = to_utm(zone, zone.to_lon_lat(easting, northing));
            prop_assert!((x - easting).abs() < 1e-6, "{} {}", x, easting);
            prop_assert!((y - northing).abs() < 1e-6, "{} {}", y, northing);
        }
    }

    /// Computed with pyproj 3.7.2 (PROJ 9.5.1):
    #[test]
    fn degrees_agree_with_proj() {
        for (number, south, easting, northing, lon, lat) in ORACLE {
            let point = UtmZone { number, south }.to_lon_lat(easting, northing);
            // 1e-9 degrees is about a tenth of a millimetre. PROJ wraps longitudes, we do not.
            let turn = (point.lon - lon) / 360.0;
            assert!(
                (turn - turn.round()).abs() * 360.0 < 2e-9,
                "{number} {point:?} {lon}"
            );
            assert!((point.lat - lat).abs() < 1e-9, "{number} {point:?} {lat}");
        }
    }

    const ORACLE: [(u8, bool, f64, f64, f64, f64); 11] = [
        (
            56,
            true,
            499980.0,
            7000040.0,
            152.99979819953435,
            -27.12210850386757,
        ),
        (
            55,
            true,
            199980.0,
            6100000.0,
            143.70481645582737,
            -35.19820772231135,
        ),
        (
            31,
            false,
            300000.0,
            4900020.0,
            0.4959285929146376,
            44.22596415430252,
        ),
        (
            32,
            false,
            699960.0,
            5100000.0,
            11.583548839585335,
            46.02436507522215,
        ),
        (
            33,
            false,
            300000.0,
            5400000.0,
            12.280641504784688,
            48.72091486899348,
        ),
        (
            33,
            false,
            609780.0,
            8790240.0,
            20.224880351089116,
            79.13750293660992,
        ),
        (
            1,
            true,
            199980.0,
            8200000.0,
            -179.80688384553824,
            -16.262218447648632,
        ),
        (
            60,
            false,
            809760.0,
            7100040.0,
            -176.68409305020262,
            63.88938233563244,
        ),
        (1, false, 500000.0, 0.0, -177.0, 0.0),
        (
            20,
            true,
            399960.0,
            1490200.0,
            -66.88081778759454,
            -76.63911968126537,
        ),
        (
            35,
            false,
            100000.0,
            9300000.0,
            -2.88200467814244,
            82.79907757633278,
        ),
    ];
}
